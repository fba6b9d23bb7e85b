-- Turn an admission into a purchase, which the database has.
-- KEYS as for flash_admit   ARGV[1] sale   ARGV[2] buyer
-- returns 1, or 0 if another sale or none is known here (a load from the database includes the buyer)
local sale = redis.call('HMGET', KEYS[1], 'sale', 'ends')
if sale[1] ~= ARGV[1] then
    return 0
end
redis.call('ZREM', KEYS[2], ARGV[2])
redis.call('HDEL', KEYS[4], ARGV[2])
redis.call('SADD', KEYS[3], ARGV[2])
redis.call('PEXPIREAT', KEYS[3], tonumber(sale[2]) + 3600000)
return 1
