-- Take a marker, or return the one that is there. One command, so two callers cannot both take it.
-- KEYS[1] the marker   ARGV[1] our running value   ARGV[2] its life in milliseconds
-- returns false (nil) if it is ours now, else the value that is there
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
    return false
end
return redis.call('GET', KEYS[1])
