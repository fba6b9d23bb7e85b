-- Send a message to the listeners of a topic.
-- KEYS[1] the topic's channel   ARGV[1] the message
return redis.call('PUBLISH', KEYS[1], ARGV[1])
