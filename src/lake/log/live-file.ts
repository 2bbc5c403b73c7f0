import path from 'node:path';
import { AppError } from '../../runtime/errors.ts';
import { decodePath, findReplaced, parseStats, type AddAction, type FileStats } from './actions.ts';
import type { DataFile } from './snapshot.ts';
import { isYoungPath } from './young-folder.ts';

/**
 * Names that mean the same to the log and to the file system, as nearly all of ours do: nothing encoded, no scheme, and
 * no segment that a path would be resolved by.
 */
const plainPath = /^(?:[\w=-][\w=.-]*\/)*[\w=-][\w=.-]*$/;

const nothing = {};

/** A live file as its add describes it. The statistics are parsed when they are first asked for: few ever are. */
class LiveFile implements DataFile {
  readonly path: string;
  readonly absolutePath: string;
  readonly sizeBytes: number;
  readonly sha256: string | undefined;
  readonly keyless: boolean;
  readonly young: boolean;
  readonly replaces: string | undefined;
  readonly #add: AddAction;
  #stats: FileStats | undefined;

  constructor(add: AddAction, relative: string, absolutePath: string) {
    this.path = relative;
    this.absolutePath = absolutePath;
    this.sizeBytes = add.size;
    this.sha256 = add.tags?.['sha256'];
    this.keyless = add.tags?.['keyed'] === '0';
    this.young = isYoungPath(relative);
    this.replaces = findReplaced(add);
    this.#add = add;
  }

  get numRecords(): number | undefined {
    const { numRecords } = this.#parse();
    return typeof numRecords === 'number' ? numRecords : undefined;
  }

  get minValues(): Readonly<Record<string, unknown>> {
    return this.#parse().minValues ?? nothing;
  }

  get maxValues(): Readonly<Record<string, unknown>> {
    return this.#parse().maxValues ?? nothing;
  }

  #parse(): FileStats {
    return (this.#stats ??= parseStats(this.#add.stats));
  }
}

/**
 * Makes what readers use of an add; `root` is the table's folder, absolute. Errors: `lake_protocol` where the log names
 * a file outside the table.
 */
export function toDataFile(root: string, add: AddAction): DataFile {
  if (plainPath.test(add.path)) return new LiveFile(add, add.path, `${root}${path.sep}${add.path}`);
  const relative = decodePath(add.path);
  const absolutePath = relative === undefined ? root : path.resolve(root, relative);
  if (relative === undefined || /^[a-z][a-z0-9+.-]+:/i.test(relative) || !absolutePath.startsWith(root + path.sep)) {
    throw new AppError('lake_protocol', `the log names a file outside the table: ${add.path}`, {
      hint: 'Another engine added it; copy the file into the lake by an import.',
    });
  }
  return new LiveFile(add, relative, absolutePath);
}

/** Says whether a path stands in the log as this service writes it: then no other text in the log means the same file. */
export function isOwnEncoding(encoded: string): boolean {
  if (plainPath.test(encoded)) return true;
  const relative = decodePath(encoded);
  return relative !== undefined && encodeURI(relative) === encoded;
}
