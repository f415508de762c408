-- Remove values of one namespace of a cache together with their rows in its list.
-- KEYS: entries, entry...
-- ARGV: name...
-- Returns: {"OK"}

for i = 2, #KEYS do
  redis.call('DEL', KEYS[i])
  redis.call('ZREM', KEYS[1], ARGV[i - 1])
end
return {'OK'}
