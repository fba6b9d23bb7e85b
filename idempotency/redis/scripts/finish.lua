-- Replace a marker by the finished answer, and wake its waiters.
-- KEYS[1] the marker, whose name is the channel too   ARGV[1] the answer   ARGV[2] its life in milliseconds
-- returns how many were woken
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.call('PUBLISH', KEYS[1], 'finished')
