-- Let go of the beginning of a path's log.
-- KEYS: head, log
-- ARGV: incarnation, through (the last seq that goes)
-- Returns: {"OK"} | {"MOVED"}
-- luacheck: read globals guard
local head = redis.call('HMGET', KEYS[1], 'incarnation', 'trimmed')
if head[1] ~= ARGV[1] or tonumber(ARGV[2]) <= tonumber(head[2] or '0') then return {'MOVED'} end

redis.call('HSET', KEYS[1], 'trimmed', ARGV[2])
redis.call('XTRIM', KEYS[2], 'MINID', guard.text(tonumber(ARGV[2]) + 1) .. '-0')
return {'OK'}
