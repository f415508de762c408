-- Stores one record in the place of several, all of which are superseded by it; nothing is written if one has changed.
-- KEYS: head, log, order, expiring, pending, ops, record, content, same, contents, vectors, sources, source...
-- ARGV: op, keep_ms, incarnation, seq, fence, id, ttl_ms or '', pend ('1' or ''), space (of the vector, or ''), count, (id, version of source)..., (field, value)...
-- Returns: {"OK", answer} | {"CHANGED", id} | {"SPACE", space} | {"LOST", holder, fence} | {"TOOLATE"} | {"REGRESSED", what}
-- luacheck: read globals guard path said sets
--
-- answer is "<incarnation> <seq>".
local head_k, log_k, order_k, expiring_k, pending_k = unpack(KEYS, 1, 5)
local ops_k, record_k, content_k, same_k, contents_k, vectors_k, sources_k = unpack(KEYS, 6, 12)
local op, keep_ms, incarnation, seen, fence = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local id, ttl_ms, pend, space, count = ARGV[6], ARGV[7], ARGV[8] == '1', ARGV[9], tonumber(ARGV[10])

local repeated = path.answered(ops_k, op)
if repeated then return {'OK', repeated} end
local now = guard.now()
local head, refused = path.head(head_k, order_k, now, incarnation, seen)
if refused then return refused end
if path.overdue(op, now, keep_ms) then return {'TOOLATE'} end
local stale = guard.fence(fence, redis.call('HGET', head_k, 'fence'))
if stale then return stale end
if space ~= '' and head.space ~= space then return {'SPACE', head.space or ''} end
if redis.call('ZSCORE', order_k, id) then return {'CHANGED', id} end
local sources = {}
for i = 1, count do
  local source = path.record(KEYS[12 + i], now)
  local name, version = ARGV[9 + 2 * i], ARGV[10 + 2 * i]
  if not source or source.version ~= version or source.superseded_by ~= '' then return {'CHANGED', name} end
  sources[i] = source
end
redis.call('ZCARD', expiring_k)
redis.call('ZCARD', sources_k)
redis.call('HLEN', contents_k)
redis.call('SCARD', pending_k)
redis.call('XLEN', log_k)
for i = 11 + 2 * count, #ARGV, 2 do
  if ARGV[i] == 'vector' then sets.add(head, vectors_k, space, id, ARGV[i + 1], '') end
end

local seq = path.log(head, log_k, 'put', id, '1')
local stamp = guard.text(now)
redis.call('DEL', record_k)
redis.call('HSET', record_k, unpack(ARGV, 11 + 2 * count))
redis.call('HSET', record_k, 'version', '1', 'seq', seq, 'op', op, 'updated', stamp, 'valid_from', stamp)
if space ~= '' then
  redis.call('HSET', record_k, 'vid', seq, 'of', path.tag(space))
elseif pend then
  redis.call('SADD', pending_k, id)
end
redis.call('ZADD', order_k, seq, id)
if ttl_ms ~= '' then
  local expires = guard.text(math.floor(now / 1000) + tonumber(ttl_ms))
  redis.call('HSET', record_k, 'ttl', ttl_ms, 'expires', expires)
  redis.call('PEXPIREAT', record_k, expires)
  redis.call('ZADD', expiring_k, expires, id)
end
said.enter(said.of(redis.call('HGET', record_k, 'content'), content_k, same_k, contents_k, order_k, expiring_k), id)
for i = 1, count do
  local version = guard.text(tonumber(sources[i].version) + 1)
  redis.call('ZADD', sources_k, seq, ARGV[9 + 2 * i])
  redis.call('HSET', KEYS[12 + i], 'version', version, 'seq', path.log(head, log_k, 'put', ARGV[9 + 2 * i], version),
    'superseded_by', id, 'valid_until', stamp, 'op', op)
end
head.count = head.count + 1
local answer = head.incarnation .. ' ' .. guard.text(head.seq)
path.close(head, ops_k, op, keep_ms, answer)
return {'OK', answer}
