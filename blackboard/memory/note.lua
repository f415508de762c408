-- Notes how far a change of a path's embedding space has come; told nothing, that it is at its end.
-- KEYS: head, migration
-- ARGV: fence, field_and_value...
-- Returns: {"OK"} | {"LOST", holder, fence} | {"REGRESSED"}
-- luacheck: read globals guard
local refusal = guard.fence(ARGV[1], redis.call('HGET', KEYS[1], 'fence'))

if refusal then
  return refusal
end
if #ARGV == 1 then
  redis.call('DEL', KEYS[2])
else
  redis.call('HSET', KEYS[2], unpack(ARGV, 2))
end
return {'OK'}
