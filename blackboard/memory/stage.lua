-- Writes one chunk of a snapshot that is being built; it goes by itself unless the pointer comes to name it.
-- KEYS: head, chunks, chunk
-- ARGV: fence, incarnation, scrubs, name, ttl_ms, body
-- Returns: {"OK"} | {"SCRUBBED", scrubs} | {"LOST", holder, fence} | {"REGRESSED"}
-- luacheck: read globals guard
local fence, incarnation, scrubs = ARGV[1], ARGV[2], ARGV[3]
local head = redis.call('HMGET', KEYS[1], 'fence', 'incarnation', 'scrubs')
local refusal = guard.fence(fence, head[1])

if refusal or head[2] ~= incarnation then
  return refusal or {'REGRESSED'}
end
-- Its rows were read before a scrub: one of them may be of a record that is forgotten by now.
if (head[3] or '0') ~= scrubs then
  return {'SCRUBBED', head[3] or '0'}
end
redis.call('SADD', KEYS[2], ARGV[4])
-- A late repetition must not touch a chunk that the pointer names by now.
redis.call('SET', KEYS[3], ARGV[6], 'PX', ARGV[5], 'NX')
return {'OK'}
