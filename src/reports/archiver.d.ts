/** The part of archiver 8 that is used here; the package has no types. */
declare module 'archiver' {
  import type { Readable, Transform } from 'node:stream';

  export class ZipArchive extends Transform {
    /**
     * `store`: entries are not compressed. `forceZip64`: sizes and offsets over 4 GiB have their place from the start.
     */
    constructor(options: { store?: boolean; forceZip64?: boolean; forceUTC?: boolean; zlib?: { level: number } });
    append(source: Readable, entry: { name: string; date?: Date; mode?: number }): this;
    finalize(): Promise<void>;
    abort(): this;
  }
}
