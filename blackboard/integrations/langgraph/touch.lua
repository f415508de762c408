-- Begin the time of records anew, of those whose time is not over and that have one; what finds a record lives as long as it.
-- KEYS: expiring, record_and_content...
-- ARGV: id...
-- Returns: {"OK", touched}
-- luacheck: read globals guard
--
-- Two keys for each id: the record, and its content's. Neither version nor seq changes: nothing new is said.

local expiring_k = KEYS[1]
local now = guard.now()
redis.call('ZCARD', expiring_k)
local touched = 0
for i, id in ipairs(ARGV) do
  local record_k, content_k = KEYS[2 * i], KEYS[2 * i + 1]
  local ttl_ms, expires = unpack(redis.call('HMGET', record_k, 'ttl', 'expires'))
  if ttl_ms and expires and not guard.expired(expires, now - 1000) then
    local moved = guard.text(math.floor(now / 1000) + tonumber(ttl_ms))
    redis.call('HSET', record_k, 'expires', moved)
    redis.call('PEXPIREAT', record_k, moved)
    redis.call('PEXPIREAT', content_k, moved)
    redis.call('ZADD', expiring_k, moved, id)
    touched = touched + 1
  end
end
return {'OK', touched}
