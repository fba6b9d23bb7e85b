-- Read a snapshot of the running sale. Writes nothing.
-- KEYS as for flash_admit   ARGV[1] buyer, or an empty string
-- returns {sale, units, taken, arrivals, bought (1 or 0), place (0: none)}, or {}: no running sale here
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local sale = redis.call('HMGET', KEYS[1], 'sale', 'units', 'starts', 'ends', 'arrivals')
if not sale[1] or now < tonumber(sale[3]) or now >= tonumber(sale[4]) then
    return {}
end
local taken = redis.call('SCARD', KEYS[3]) + redis.call('ZCOUNT', KEYS[2], '(' .. now, '+inf')
local place = ARGV[1] ~= '' and redis.call('HGET', KEYS[4], ARGV[1])
return {tonumber(sale[1]), tonumber(sale[2]), taken, tonumber(sale[5] or 0),
    redis.call('SISMEMBER', KEYS[3], ARGV[1]), tonumber(place or 0)}
