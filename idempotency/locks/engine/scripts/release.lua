-- Give places back, and hand them to waiters. The same request again changes nothing.
-- KEYS as in places.lua
-- ARGV[1] as in places.lua   [2] request   [3] owner   [4] the token under which it is held, or 0 for any
--      [5] the request of an acquire that is undone by this, also in the queue; or ''   [6] channel of the caller
-- returns {1, places and holds left} or {0} if the owner does not hold that; an error if it was given back, but
--     nobody may be notified: waiters find it free when they look

local owner, request, token, undone = ARGV[3], ARGV[2], tonumber(ARGV[4]), ARGV[5]
local mine = open(owner)

if undone ~= '' then
    local text = redis.call('HGET', KEYS[3], owner)
    local waited = text and read_waiter(text).request == undone
    if waited then leave_queue(owner) end
    local places = mine and mine.shared + mine.exclusive or 0
    if places == 0 or mine.request ~= undone then
        if not is_late(owner, mine, request) then
            -- a waiter behind may fit where this one did not; and what is undone may be on its way still
            if waited then grant() end
            mine = mine or nothing(undone, OVER)
            if is_ordered(owner) then mine.request = request end
            close(owner, mine)
        end
        return {1, places}
    end
elseif not mine or (token > 0 and mine.token ~= token) or is_late(owner, mine, request) then
    return {0}
elseif mine.request == request then
    return {1, mine.shared + mine.exclusive}
end

if undone ~= '' and string.sub(ARGV[1], 65) == '/' then
    for number = 2, shared do  -- the other permits of an acquire
        local text = redis.call('HGET', KEYS[1], owner .. '/' .. number)
        if text then used = used - read_holder(text).shared end
        redis.call('HDEL', KEYS[1], owner .. '/' .. number)
    end
    shared = mine.shared
end
if shared + exclusive == 0 then shared = mine.shared end
local before = weight(mine)
mine.shared, mine.exclusive, mine.request = mine.shared - shared, mine.exclusive - exclusive, request
if mine.shared < 0 or mine.exclusive < 0 then return {0} end

used = used - before + weight(mine)
if mine.shared + mine.exclusive == 0 then
    if mine.channel and mine.channel ~= ARGV[6] then notify_of_end(owner, mine, true) end
    mine.ends = now + REMEMBER
end
grant()
close(owner, mine)
if denied then return redis.error_reply('NOPERM PUBLISH: ' .. denied) end
return {1, mine.shared + mine.exclusive}
