/**
 * Store: objects and records behind one interface; nothing here depends on events. The implementations, a folder and a
 * bucket (s3-store.ts), pass the same suite (test/unit/runtime/store).
 *
 * Invariant: each change is durable when its promise resolves, and a reader sees the old object or the new one. Crash:
 * a temporary next to the object, with the suffix `.tmp`, which no list contains.
 */
import type { Readable } from 'node:stream';

/** Identifies a state of an object: two states of one key have different tags. */
export type Tag = `#${string}`;

export interface StoredObject {
  readonly bytes: Uint8Array;
  readonly tag: Tag;
}

interface CreateSteps {
  /** Called when the bytes are written and the object does not exist yet. An error aborts the creation. */
  readonly onWritten?: () => Promise<void>;
  /** Called when the object exists, durable or not. */
  readonly onCreated?: () => Promise<void>;
}

interface NewObject {
  readonly key: string;
  readonly file: string;
  /** SHA-256 of the file, hex, if known. A store that sends the bytes compares them. */
  readonly sha256?: string | undefined;
}

/** An object that is open for reads. They return the bytes of one version, or fail if another one replaced it. */
export interface OpenObject {
  readonly sizeBytes: number;
  /** Another text after each write to the object. */
  readonly version: string;
  /** Reads up to `length` bytes from a position; fewer at the end. */
  read(from: number, length: number): Promise<Uint8Array>;
  /** Reads all bytes in order. A block is valid until the next one. */
  blocks(): AsyncIterable<Uint8Array>;
  /** Streams the bytes from `first` to `last`, all by default. The end of the stream closes the object. */
  stream(range?: { readonly first: number; readonly last: number }): Readable & { readonly bytesRead: number };
  close(): Promise<void>;
}

/** Properties of a local file that is uploaded, if they are known. */
interface KnownBytes {
  /** SHA-256, hex. */
  readonly sha256?: string | undefined;
  /** Whether its bytes are fsynced. */
  readonly isSynced?: boolean;
}

/** Life of a presigned URL, and the headers of its response. */
export interface PresignOptions {
  /** Time in which a request may begin, s. */
  readonly seconds: number;
  readonly fileName: string;
  readonly contentType: string;
}

/** Objects under one prefix. A key is a relative path with `/`. Errors: those of the system behind it. */
export interface ObjectStore {
  /** The folder of the objects, for promises to readers of folders. Undefined: objects are not files. */
  readonly folder?: string;
  /** Returns the name of an object for people: its path or address. */
  nameOf(key: string): string;
  /** Creates an object. Of concurrent writers, one creates it. */
  create(key: string, bytes: Uint8Array, steps?: CreateSteps): Promise<'created' | 'exists'>;
  /** Creates an object that is read only once a commit names it: a crash may leave a part of it. Error: EEXIST. */
  add(key: string, bytes: Uint8Array): Promise<void>;
  /** Replaces an object that still has `ifTag`; with `any`, creates or replaces it. */
  replace(key: string, bytes: Uint8Array, ifTag: Tag | 'any'): Promise<Tag | 'conflict'>;
  /**
   * Replaces the bytes after a position of an object that still has `ifTag`; `absent`: creates it. A folder writes in
   * place: a crash may leave a part, and the caller excludes other writers. Other stores replace the object.
   */
  append(key: string, bytes: Uint8Array, from: number, ifTag: Tag | 'absent'): Promise<Tag | 'conflict'>;
  /** Creates or replaces an object, not durably: a power cut may undo it. */
  note(key: string, bytes: Uint8Array): Promise<void>;
  /** Returns a new path for a local file that will be uploaded as the object of a key. */
  localPath(key: string): string;
  /**
   * Moves a finished local file into the store, replacing an object of the key. A store that sends the bytes compares
   * them with the SHA-256, if it is known. Error: `file_damaged`.
   */
  upload(key: string, localFile: string, known?: KnownBytes): Promise<void>;
  /**
   * Creates objects from durable local files, which stay unchanged. Calls `onEach` after each. Errors: EEXIST,
   * `file_damaged`.
   */
  publish(objects: readonly NewObject[], onEach?: () => Promise<void>): Promise<void>;
  /** Renames an object, replacing one of the new key. A power cut may undo it until `sync`. Error: ENOENT. */
  move(key: string, to: string): Promise<void>;
  /**
   * Makes earlier moves from or to these keys durable, and what was read at them: its writer may have been killed
   * before. A folder has the error ENOENT if that of a key is missing.
   */
  sync(keys: readonly string[]): Promise<void>;
  get(key: string): Promise<StoredObject | undefined>;
  /** Opens an object for reads at any position. Undefined if there is none; a symbolic link is none. */
  open(key: string): Promise<OpenObject | undefined>;
  /** Returns a URL that gives the bytes to anyone. Sends no request. Undefined: the store serves no URLs. */
  readonly presign?: (key: string, options: PresignOptions) => Promise<string>;
  findSize(key: string): Promise<number | undefined>;
  findTag(key: string): Promise<Tag | undefined>;
  /** Reads an object unless it still has `tag`. Cheap while it has. */
  getIfChanged(key: string, tag: Tag): Promise<StoredObject | 'unchanged' | undefined>;
  /** Calls back soon after objects may have changed, without a guarantee. Returns the function that stops it. */
  onHint(keys: readonly string[], listener: () => void): () => void;
  /** Lists the keys that begin with a prefix, which is empty or ends with `/`, in no order. */
  list(prefix: string): Promise<readonly string[]>;
  /** Lists the names between a prefix and the next `/` of the keys under it, in no order. One may have lost its keys. */
  folders(prefix: string): Promise<readonly string[]>;
  /** Returns a tag that changes with the keys under a prefix; undefined if that costs as much as a list. */
  findListTag(prefix: string): Promise<Tag | undefined>;
  remove(keys: readonly string[]): Promise<void>;
  /** Removes leftovers of killed writers under a prefix. No writer may be active. */
  sweep(prefix: string): Promise<void>;
  /** Lists the keys of unfinished writes directly under a prefix, for `remove` while others may write. */
  listUnfinished(prefix: string): Promise<readonly string[]>;
  /** Whether processes on other hosts may change objects too. */
  readonly isShared: boolean;
  /**
   * Runs one task per name at a time; comparing changes use the empty name. In a shared store, this holds within the
   * process only. Error: `locked`.
   *
   * Users in a shared store: records and file records need no exclusion, since they compare and swap. Adding a schedule
   * or a webhook counts those of the account first: hosts that add at the same moment may exceed the limit, and may add
   * two equal schedules. A backup copies folders only.
   */
  hold<T>(name: string, work: () => Promise<T>): Promise<T>;
  /** Reports whether removed and replaced objects stay as earlier versions; undefined if that cannot be known. */
  keepsVersions(): Promise<boolean | undefined>;
  /** Throws for storage that cannot keep the promises of this interface. Error: `start_failed`. */
  probe(): Promise<void>;
}

/** Returns the error of a missing object: that of a missing file. */
export function missingObject(name: string): Error {
  return Object.assign(new Error(`${name} does not exist`), { code: 'ENOENT' });
}

export async function findText(store: ObjectStore, key: string): Promise<string | undefined> {
  const found = await store.get(key);
  return found === undefined
    ? undefined
    : Buffer.from(found.bytes.buffer, found.bytes.byteOffset, found.bytes.length).toString('utf8');
}
