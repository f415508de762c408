-- Ask the vector set of a path for the records whose vectors are nearest to one, by the cosine.
-- KEYS: head, vectors, pending
-- ARGV: space, vector (32 bits a number), count, exact ('1': compare with all of them)
-- Returns: {now, incarnation, seq, space, state, pending, card, hits}
-- luacheck: read globals guard path
--
-- incarnation, seq and space are '' where there is none. state is 'kept', 'filling' for a set that does not hold all vectors yet,
-- 'none' if there is none of the space. pending counts records whose vector is still to be made, card the elements of the set;
-- hits are ids, each followed by its score, `(1 + cosine) / 2`.
local head_k, vectors_k, pending_k = unpack(KEYS)
local f = redis.call('HMGET', head_k, 'incarnation', 'seq', 'space', 'vectors', 'vectors_at')
local answer = {guard.text(guard.now()), f[1] or '', f[2] or '', f[3] or '', 'none', redis.call('SCARD', pending_k), 0, {}}
if f[3] ~= ARGV[1] or f[4] ~= path.tag(ARGV[1]) then return answer end
answer[5] = f[5] and 'filling' or 'kept'
answer[7] = redis.call('VCARD', vectors_k)
local asked = {vectors_k, 'FP32', ARGV[2], 'WITHSCORES', 'COUNT', ARGV[3], ARGV[4] == '1' and 'TRUTH'}
answer[8] = redis.call('VSIM', unpack(asked, 1, asked[7] and 7 or 6))
return answer
