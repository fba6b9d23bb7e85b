-- Take shared places, or all, from their holders, and hand them to waiters. The same request again changes nothing.
-- KEYS and ARGV[1] as in places.lua   ARGV[2] request   [3] token of the only hold to end, or 0
-- returns how many holds it ended, of which their processes are notified

local request, token = ARGV[2], tonumber(ARGV[3])
local owner = 'force ' .. request  -- no holder's name: it has a record as one without places has
local before = open(owner)
if before then return before.token end

local ended = 0
for each, holder in records() do
    local places = weight(holder)
    if places > 0 and (holder.exclusive > 0) == (exclusive > 0) and (token == 0 or token == holder.token) then
        used, ended = used - places, ended + 1
        notify_of_end(each, holder)
        holder.shared, holder.exclusive, holder.ends = 0, 0, now + REMEMBER
        redis.call('HSET', KEYS[1], each, written(holder))
    end
end
grant()
close(owner, nothing(request, ended))
return ended
