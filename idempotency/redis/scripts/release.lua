-- Compare-and-delete: remove a running marker, only if it is still ours, and wake its waiters.
-- KEYS[1] the marker, whose name is the channel too   ARGV[1] the value that our claim wrote
-- returns 1 if it was removed, 0 if it is gone or someone else's
if redis.call('GET', KEYS[1]) == ARGV[1] then
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', KEYS[1], 'released')
    return 1
end
return 0
