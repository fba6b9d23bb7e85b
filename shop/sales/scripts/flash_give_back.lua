-- Compare-and-delete: an admission became no purchase, its unit goes to the next one who comes.
-- KEYS as for flash_admit   ARGV[1] sale   ARGV[2] buyer   ARGV[3] place that he was given
-- returns 1 if it was given back, 0 if it is gone or another one
if redis.call('HGET', KEYS[1], 'sale') ~= ARGV[1] or redis.call('HGET', KEYS[4], ARGV[2]) ~= ARGV[3] then
    return 0
end
redis.call('HDEL', KEYS[4], ARGV[2])
return redis.call('ZREM', KEYS[2], ARGV[2])
