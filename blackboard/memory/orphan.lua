-- Remove what points to a record that is not there, or does not say so.
-- KEYS: record, pointer
-- ARGV: id, kind (zset or hash or set or string), field (of the record), value (that it must not have; empty: any)
-- Returns: {"OK"} | {"MOVED"}
local id, kind = ARGV[1], ARGV[2]
local found = redis.call('HGET', KEYS[1], ARGV[3])

if found and (ARGV[4] == '' or found == ARGV[4]) then
  return {'MOVED'}
end
if kind == 'zset' then
  redis.call('ZREM', KEYS[2], id)
elseif kind == 'hash' then
  redis.call('HDEL', KEYS[2], id)
elseif kind == 'set' then
  redis.call('SREM', KEYS[2], id)
elseif redis.call('GET', KEYS[2]) == id then
  redis.call('DEL', KEYS[2])
end
return {'OK'}
