-- Compare and delete: give the unit of an admission without a purchase to the next buyer.
-- KEYS as for flash_admit   ARGV[1] sale   ARGV[2] buyer   ARGV[3] place of the admission
-- returns 1 if it was given back, 0 if it is gone or another one
if redis.call('HGET', KEYS[1], 'sale') ~= ARGV[1] or redis.call('HGET', KEYS[4], ARGV[2]) ~= ARGV[3] then
    return 0
end
redis.call('HDEL', KEYS[4], ARGV[2])
return redis.call('ZREM', KEYS[2], ARGV[2])
