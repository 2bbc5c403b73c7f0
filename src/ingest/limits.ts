/** service.md 8: imported data of a request, bytes after decompression. */
export const maxBodyBytes = 10_240;
/** service.md 2.3 */
export const maxBatchEvents = 20;
/** Longest Idempotency-Key, characters. */
export const maxKeyLength = 255;
