-- Read the buyers. Writes nothing.
-- KEYS as for flash_admit
-- returns them, or {} if something else stands there
if redis.call('TYPE', KEYS[3]).ok ~= 'set' then
    return {}
end
return redis.call('SMEMBERS', KEYS[3])
