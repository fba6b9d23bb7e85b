-- Prolong leases that still run; also how a holder confirms what it was granted while it waited.
-- KEYS[i] holders of a resource (see places.lua)   ARGV[3i-2] owner   [3i-1] token   [3i] lease in microseconds
-- returns for each of them its new end, or 0 if it is no more held under that token; and last the time

local RETAIN = 60000000  -- as in places.lua
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ends = {}
for index, key in ipairs(KEYS) do
    local owner, token, lease = ARGV[3 * index - 2], tonumber(ARGV[3 * index - 1]), tonumber(ARGV[3 * index])
    local text = redis.call('HGET', key, owner)
    local shared, exclusive, ended, held_token = 0, 0, 0, 0
    if text then shared, exclusive, ended, held_token = struct.unpack('>dddd', text) end
    if held_token == token and shared + exclusive > 0 and ended > now then
        local prolonged = math.max(ended, now + lease)
        local state = redis.call('HGET', key, '#')
        local used, next_end, expires, fence = struct.unpack('>dddd', state)
        if prolonged + RETAIN > expires then
            expires = prolonged + 2 * RETAIN
            redis.call('PEXPIRE', key, math.ceil((expires - now) / 1000))
        end
        redis.call('HSET', key,
            owner, struct.pack('>dddd', shared, exclusive, prolonged, token) .. string.sub(text, 33),
            '#', struct.pack('>dddd', used, next_end, expires, fence) .. string.sub(state, 33))
        ends[index] = prolonged
    else
        ends[index] = 0
    end
end
ends[#KEYS + 1] = now
return ends
