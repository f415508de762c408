-- Remove a slice of a deleted thread, unless its id was used anew meanwhile.
-- KEYS: meta, history, parts, victim...
-- ARGV: removing, tombstone_ms or 0 unless it is the last, number of ids, id..., part...
-- Returns: {"OK"} | {"MOVED"}

if redis.call('HGET', KEYS[1], 'removing') ~= ARGV[1] then return {'MOVED'} end
for i = 4, #KEYS do redis.call('UNLINK', KEYS[i]) end
local ids = tonumber(ARGV[3])
for i = 4, 3 + ids do redis.call('ZREM', KEYS[2], ARGV[i]) end
for i = 4 + ids, #ARGV do redis.call('SREM', KEYS[3], ARGV[i]) end
if ARGV[2] ~= '0' then
  redis.call('UNLINK', KEYS[2], KEYS[3])
  redis.call('HDEL', KEYS[1], 'removing', 'sequence', 'pruned', 'uncollected', 'created')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return {'OK'}
