-- Writes a latch, and lets it live for its whole lifetime from now.
local function write_latch(key, latch)
  local parts = {
    '1 latch', latch.nonce, latch.generation, latch.left, latch.participants, latch.lifetime, latch.first,
  }
  redis.call('SET', key, table.concat(parts, ' '), 'PX', latch.lifetime)
end
