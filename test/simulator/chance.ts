import process from 'node:process';
import { activeWorld } from './world.ts';

const crypto = process.getBuiltinModule('node:crypto');

/** The double of `randomUUID`, seeded by the world. */
export function randomUUID(): string {
  const random = activeWorld()?.random;
  if (random === undefined) return crypto.randomUUID();
  return `${random.hex(8)}-${random.hex(4)}-4${random.hex(3)}-8${random.hex(3)}-${random.hex(12)}`;
}

/** The double of `randomBytes`. */
export function randomBytes(size: number): Buffer {
  const random = activeWorld()?.random;
  return random === undefined ? crypto.randomBytes(size) : Buffer.from(random.hex(2 * size), 'hex');
}
