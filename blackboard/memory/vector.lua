-- Give a record the vector that was still to be made, if it is still the version that the vector was made from and has none by
-- now; a vector of another space that it has stays beside.
-- KEYS: head, log, order, pending, ops, record, vectors
-- ARGV: op, keep_ms, incarnation, seq, id, version, space, vector, indexed ('1': a vector set is wanted)
-- Returns: {"OK", seq} | {"NONE"} | {"SPACE", space} | {"TOOLATE"} | {"REGRESSED", what}
-- luacheck: read globals guard path sets
local head_k, log_k, order_k, pending_k, ops_k, record_k, vectors_k = unpack(KEYS, 1, 7)
local op, keep_ms, id, version, space = ARGV[1], tonumber(ARGV[2]), ARGV[5], ARGV[6], ARGV[7]

local repeated = path.answered(ops_k, op)
if repeated then return {'OK', repeated} end
local now = guard.now()
local head, refused = path.head(head_k, order_k, now, ARGV[3], ARGV[4])
if refused then return refused end
if path.overdue(op, now, keep_ms) then return {'TOOLATE'} end
local record = path.record(record_k, now)
if not record or record.version ~= version then return {'NONE'} end
if head.space and head.space ~= space then return {'SPACE', head.space} end
redis.call('SCARD', pending_k)
redis.call('XLEN', log_k)
if path.vid(head, record) ~= '' then
  redis.call('SREM', pending_k, id)
  return {'NONE'}
end

sets.add(head, vectors_k, space, id, ARGV[8], ARGV[9])
local seq, tag = path.log(head, log_k, 'vector', id, version), path.tag(space)
if record.of == '' or record.of == tag then
  redis.call('HSET', record_k, 'vector', ARGV[8], 'of', tag, 'vid', seq, 'seq', seq)
else
  redis.call('HSET', record_k, 'next', ARGV[8], 'next_of', tag, 'next_vid', seq, 'seq', seq)
end
redis.call('SREM', pending_k, id)
if not head.space then
  path.log(head, log_k, 'space', '', '0')
  redis.call('HSET', head_k, 'space', space)
end
path.close(head, ops_k, op, keep_ms, seq)
return {'OK', seq}
