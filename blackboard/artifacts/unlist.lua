-- Takes an artifact that is not stored off the list, unless an upload of it may still complete.
-- KEYS: list
-- ARGV: digest
-- Returns: {"OK"} | {"MOVED"}
-- luacheck: read globals guard
local row = redis.call('ZSCORE', KEYS[1], ARGV[1])
if row and tonumber(row) * 1000 > guard.now() then
  return {'MOVED'}
end
redis.call('ZREM', KEYS[1], ARGV[1])
return {'OK'}
