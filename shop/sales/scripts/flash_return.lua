-- Remove a buyer whose order was closed unpaid.
-- KEYS as for flash_admit   ARGV[1] sale   ARGV[2] buyer
-- returns 1 if it was a buyer here, else 0
if redis.call('HGET', KEYS[1], 'sale') ~= ARGV[1] then
    return 0
end
return redis.call('SREM', KEYS[3], ARGV[2])
