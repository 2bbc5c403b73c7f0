/** What the compactor's two engines may take, MiB. */
export interface EngineMemory {
  readonly flushMb: number;
  readonly sealMb: number;
}

/** What the process takes beside its engines: messages on their way, keys, its own heap, what an engine frees late. */
const besideMb = 384;
/** The least an engine works with. */
const leastMb = 128;

/**
 * Divides the memory setting: half of it for flushing, whose batches are bounded by that, and for sealing what is left
 * beside it and the process itself, at least a quarter. With the default of 2048 MiB and two arenas of glibc the
 * whole process took 1.3 GB at most in a soak of real events at full rate, seals of 128 MiB of young files among them.
 */
export function divideMemory(memoryMb: number): EngineMemory {
  const flushMb = Math.ceil(memoryMb / 2);
  const sealMb = Math.max(Math.ceil(memoryMb / 4), flushMb - besideMb);
  return { flushMb: Math.max(leastMb, flushMb), sealMb: Math.max(leastMb, sealMb) };
}
