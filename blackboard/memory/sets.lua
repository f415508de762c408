-- Prelude: the vector set of a path, by which a server searches the vectors of one embedding space. The head's field `vectors`
-- names that space by its tag; where it is absent no set is kept, and nothing here asks for commands that a server may lack.
-- luacheck: read globals path
local sets = {} -- luacheck: ignore sets

-- Spells a stored vector, 16 bits a number, with 32 bits a number.
function sets.wide(vector)
  local base, step, parts = {}, {}, {}
  local function learn(high)
    local exponent = math.floor(high / 4) % 32
    step[high] = (high < 128 and 1 or -1) * 2 ^ (math.max(exponent, 1) - 25)
    base[high] = ((exponent > 0 and 1024 or 0) + high % 4 * 256) * step[high]
  end
  for from = 1, #vector, 512 do
    local bytes, numbers = {string.byte(vector, from, from + 511)}, {}
    for at = 2, #bytes, 2 do
      local high = bytes[at]
      if not base[high] then learn(high) end
      numbers[at / 2] = base[high] + bytes[at - 1] * step[high]
    end
    parts[#parts + 1] = struct.pack('<' .. string.rep('f', #numbers), unpack(numbers))
  end
  return table.concat(parts)
end

-- Enters a vector where the set is of its space; a set that is wanted ('1') begins with the first vector of the path.
-- To be called before anything else is written: what the set cannot take is refused by the server.
function sets.add(head, key, space, id, vector, wanted)
  local tag = path.tag(space)
  local begins = wanted == '1' and not head.space
  if head.vectors ~= tag and not begins then return end
  redis.call('VADD', key, 'FP32', sets.wide(vector), id, 'Q8')
  if begins then
    head.vectors = tag
    redis.call('HSET', head.key, 'vectors', tag)
  end
end

function sets.remove(head, key, id)
  if head.vectors then redis.call('VREM', key, id) end
end
