-- The order of a purchase was closed unpaid: the buyer has none again.
-- KEYS as for flash_admit   ARGV[1] sale   ARGV[2] buyer
-- returns 1 if he was known as a buyer, else 0
if redis.call('HGET', KEYS[1], 'sale') ~= ARGV[1] then
    return 0
end
return redis.call('SREM', KEYS[3], ARGV[2])
