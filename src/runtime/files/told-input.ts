import { createReadStream } from 'node:fs';
import { AppError } from '../errors.ts';

/** The descriptor on which a child hears that its standard input was whole. */
export const wholeDescriptor = 3;

/**
 * Reads an input to its end, and then a byte from a descriptor, by which the input's writer says that it was whole: a
 * writer that dies closes both. Errors: `file_damaged` where there is no such byte; those of the system.
 */
export async function* readTold(input: AsyncIterable<Uint8Array>, descriptor: number): AsyncGenerator<Uint8Array> {
  yield* input;
  const told = createReadStream('', { fd: descriptor });
  const { done } = await told[Symbol.asyncIterator]().next();
  if (done === true)
    throw new AppError('file_damaged', 'the input ended before it was whole: nothing of it was loaded', {
      hint: 'Send the file again.',
    });
}
