-- Ask for, or change, the number of a semaphore's permits; or give permits of several holders back.
-- KEYS as in places.lua; KEYS[5] the reply to this request, ending in the caller's channel. The same request again
-- changes nothing.
-- ARGV[1] as in places.lua   [2] what to do:
--   look                                   returns {number of permits, how many are out}
--   set, init: [3] a number; init only where the server has none
--   add: [3] a number, which may be below 0; clear: the callers' number counts again
--                                          these return {number, out, 1 if it was stored}
--   give: from [3] holder, token and how many permits, again and again
--   named: [3] the name of holders   [4] how many permits, the newest first; 0: those of the newest acquire
--          these return holders and what each has left, -1 where it has not so many; nothing if the named have not

local what, number = ARGV[2], tonumber(ARGV[3])
local replied = redis.call('GET', KEYS[5])
if replied then return cjson.decode(replied) end

open('')
local reply, given, wanted = {}, {}, math.huge
if what == 'give' then
    for at = 3, #ARGV, 3 do given[#given + 1] = {ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])} end
elseif what == 'named' then
    local held = 0
    for owner, holder in records() do
        if holder.name == ARGV[3] and holder.shared > 0 then
            given[#given + 1] = {owner, holder.token, holder.shared}
            held = held + holder.shared
        end
    end
    table.sort(given, function(one, other) return one[2] > other[2] end)
    wanted = tonumber(ARGV[4])
    if wanted == 0 and given[1] then wanted = given[1][3] end
    if wanted > held then given = {} end
elseif what ~= 'look' then
    local stores = what ~= 'init' or redis.call('EXISTS', KEYS[4]) == 0
    if what == 'add' then number = number + capacity end
    if what == 'clear' then redis.call('DEL', KEYS[4])
    elseif stores then redis.call('SET', KEYS[4], string.format('%.0f', number)) end
    reply[3] = stores and 1 or 0
end

for _, each in ipairs(given) do
    local count = math.min(each[3], wanted)
    wanted = wanted - count
    local text = count > 0 and redis.call('HGET', KEYS[1], each[1])
    local mine = text and read_holder(text)
    local held = mine and mine.token == each[2] and mine.shared >= count
    if held then
        mine.shared, used = mine.shared - count, used - count
        -- `request` stays that of the acquire: a late copy of it finds this, and takes nothing
        if mine.shared == 0 then
            if mine.channel and string.sub(KEYS[5], -#mine.channel) ~= mine.channel then notify_of_end(each[1], mine, true) end
            mine.ends, mine.token = now + REMEMBER, OVER
        end
        redis.call('HSET', KEYS[1], each[1], written(mine))
    end
    if count > 0 then reply[#reply + 1], reply[#reply + 2] = each[1], held and mine.shared or -1 end
end

capacity = places()
if what ~= 'look' or freed then
    grant()
    if redis.call('EXISTS', KEYS[1]) == 1 then close() end
end
if what ~= 'give' and what ~= 'named' then reply[1], reply[2] = capacity, used end
if what ~= 'look' then redis.call('SET', KEYS[5], cjson.encode(reply), 'PX', REMEMBER / 1000) end
if denied then return redis.error_reply('NOPERM PUBLISH: ' .. denied) end
return reply
