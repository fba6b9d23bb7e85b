-- Load a sale from the database. Running admissions stay, unless they are of another sale.
-- KEYS as for flash_admit
-- ARGV[1] sale   ARGV[2] units, the bought ones included   ARGV[3], ARGV[4] start and end in Unix milliseconds
-- ARGV[5] arrivals at least   ARGV[6] 1: replace a sale that is known here
-- ARGV[7] number of buyers, who follow; the rest are buyers no more
-- returns the number of buyers that differed, or -1 if nothing was loaded
local kinds = {'hash', 'zset', 'set', 'hash'}
for index, kind in ipairs(kinds) do
    local found = redis.call('TYPE', KEYS[index]).ok
    if found ~= kind and found ~= 'none' then
        redis.call('DEL', KEYS[index])
    end
end
local known = redis.call('HGET', KEYS[1], 'sale')
if known == ARGV[1] and ARGV[6] ~= '1' then
    return -1
end
if known and known ~= ARGV[1] then
    redis.call('DEL', unpack(KEYS))
end
local differed = 0
for index = 8, 7 + ARGV[7] do
    differed = differed + redis.call('SADD', KEYS[3], ARGV[index])
    redis.call('ZREM', KEYS[2], ARGV[index])
    redis.call('HDEL', KEYS[4], ARGV[index])
end
for index = 8 + ARGV[7], #ARGV do
    differed = differed + redis.call('SREM', KEYS[3], ARGV[index])
end
-- a value that is no number counts as none
local arrivals = tonumber(redis.call('HGET', KEYS[1], 'arrivals') or 0) or 0
redis.call('HSET', KEYS[1], 'sale', ARGV[1], 'units', ARGV[2], 'starts', ARGV[3], 'ends', ARGV[4],
    'arrivals', string.format('%.0f', math.max(arrivals, tonumber(ARGV[5]))))
for index = 1, #KEYS do
    redis.call('PEXPIREAT', KEYS[index], tonumber(ARGV[4]) + 3600000)
end
return differed
