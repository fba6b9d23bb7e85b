-- Take shared places, or all, from their holders, and hand them to waiters. The same request again changes nothing.
-- KEYS and ARGV[1] as in places.lua   ARGV[2] request   [3] token of the only hold to end, or 0
-- returns how many holds it ended; the process of each hears '- token key owner'

local request, token = ARGV[2], tonumber(ARGV[3])
local owner = 'force ' .. request  -- no holder's name: it has a record as one without places has
local before = open(owner)
if before then return before.token end

local fields, ended = redis.call('HGETALL', KEYS[1]), 0
for index = 1, #fields, 2 do
    local holder = fields[index] ~= '#' and read_holder(fields[index + 1])
    local places = holder and weight(holder) or 0
    if places > 0 and (holder.exclusive > 0) == (exclusive > 0) and (token == 0 or token == holder.token) then
        used, ended = used - places, ended + 1
        if holder.channel then
            redis.pcall('PUBLISH', holder.channel, string.format('- %.0f ', holder.token) .. KEYS[1] .. ' ' .. fields[index])
        end
        holder.shared, holder.exclusive, holder.ends = 0, 0, now + REMEMBER
        redis.call('HSET', KEYS[1], fields[index], written(holder))
    end
end
if used == 0 then next_end = NEVER end
grant()
close(owner, nothing(request, ended))
return ended
