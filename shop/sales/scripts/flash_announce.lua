-- End the current sale at the start of the product's next one.
-- KEYS as for flash_admit   ARGV[1] start of the other sale in Unix milliseconds
-- returns 1 if it ends earlier now, else 0
local sale = redis.call('HMGET', KEYS[1], 'starts', 'ends')
local start = tonumber(ARGV[1])
if not sale[1] or start <= tonumber(sale[1]) or start >= tonumber(sale[2]) then
    return 0
end
redis.call('HSET', KEYS[1], 'ends', ARGV[1])
return 1
