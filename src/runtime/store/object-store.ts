/**
 * Store: objects and records behind one interface, without a word of events. A folder is the only implementation;
 * whatever follows has to pass the same suite (test/unit/runtime/store).
 *
 * Invariant: each change is durable when its promise resolves, and a reader sees the old object or the new one.
 * Crash: a temporary beside the object, with `.tmp` at its end, which no list names.
 */

/** Names one state of an object: two states of one key have different tags. */
export type Tag = `#${string}`;

/** An object as it was read. */
export interface StoredObject {
  readonly bytes: Uint8Array;
  readonly tag: Tag;
}

/** Objects under one prefix. A key is a relative path with `/`. Errors: those of the system behind it. */
export interface ObjectStore {
  /** Returns the name of an object for people: its path, or its address. */
  nameOf(key: string): string;
  /** Creates an object. Of several writers at once one creates it, and the others find that it exists. */
  create(key: string, bytes: Uint8Array): Promise<'created' | 'exists'>;
  /** Replaces an object that still has `ifTag`; `any` replaces whatever is there, also nothing. */
  replace(key: string, bytes: Uint8Array, ifTag: Tag | 'any'): Promise<Tag | 'conflict'>;
  /** Moves a finished local file into the store, as the object of a key. */
  upload(key: string, localFile: string): Promise<void>;
  /** Reads an object; undefined if there is none. */
  get(key: string): Promise<StoredObject | undefined>;
  /** Reads an object unless it still has `tag`. Costs little while it has. */
  getIfChanged(key: string, tag: Tag): Promise<StoredObject | 'unchanged' | undefined>;
  /**
   * Calls back soon after objects may have changed, as far as the store is told of it: nobody can rely on it. Returns what
   * ends that.
   */
  onHint(keys: readonly string[], listener: () => void): () => void;
  /** Lists the keys that begin with a prefix, which is empty or ends with `/`, in no order. */
  list(prefix: string): Promise<readonly string[]>;
  /** Removes objects. One that is not there is already removed. */
  remove(keys: readonly string[]): Promise<void>;
  /** Removes what killed writers have left beside the objects of a prefix. No writer of them may be at work. */
  sweep(prefix: string): Promise<void>;
  /**
   * Runs one piece of work of a name at a time, whichever process runs it; those of this process in the order in which
   * they asked. The empty name is that of all comparing changes. Error: `locked` after 30 s of another process.
   */
  hold<T>(name: string, work: () => Promise<T>): Promise<T>;
}
