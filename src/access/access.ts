import type { Platform } from '../datasets/field-schema.ts';
import type { Problem } from '../runtime/problems/problem.ts';

/**
 * Access: who may do what. Apps with their import tokens, accounts, and the users of the export area.
 *
 * In: operators' commands (`app add`, `user add`, ...), which rewrite `access.json` under a lock.
 * Out: an AccessView in the memory of each process, renewed within a second of a change.
 * Invariant: tokens are stored as SHA-256 hashes, user secrets encrypted (AES-256-GCM) under `keys/secrets.key`.
 * Crash: access.json is the old file or the new one (temporary, fsync, rename).
 */

export interface App {
  readonly idApp: number;
  readonly platform: Platform;
  readonly title: string;
  readonly sdkKey: string;
  readonly idAccount: number;
  readonly idProject: number | undefined;
}

/** The default compression of a user's files. */
export type FilePreferences = 'auto' | 'gzip';

/** The account of operators who belong to none. No app and no export request has it. */
export const noAccount = 0;

/** A user of the export area. `secret` is in clear text because AuthHMAC needs it; it never reaches a log. */
export interface User {
  readonly idUser: string;
  readonly name: string;
  /** `noAccount` for an operator without an account. */
  readonly idAccount: number;
  readonly secret: string;
  /** Hash of the personal password; absent without one. */
  readonly passwordHash?: string;
  /** Whether the user may create export requests (docs/api.md#export). */
  readonly canExport: boolean;
  /** Limit of concurrent export requests, within the account's limit. */
  readonly maxExports: number | undefined;
  /** `gzip` compresses files unless a request says otherwise, for clients that decompress every file. */
  readonly files: FilePreferences;
  /** Whether the user may see the service's status and change apps and users of all accounts. */
  readonly isOperator: boolean;
}

/** A consistent version of the access file in memory. Lookups take microseconds and do no I/O. */
export interface AccessView {
  findApp(idApp: number): App | undefined;
  /** Returns the app if the token is one of its live tokens. A token is compared by its hash, in constant time. */
  findAppByToken(idApp: number, token: string): App | undefined;
  /**
   * Names the app of a live token: its idApp, 'none', or undefined in a service of more than 10,000 apps, where a search
   * for each wrong token costs too much.
   */
  nameAppOfToken(token: string): number | 'none' | undefined;
  findUser(idUser: string): User | undefined;
  /** Returns the users of a name, of all accounts or of one; at most ten. */
  findUsersByName(name: string, idAccount?: number): readonly User[];
  /** Whether any user has a personal password. */
  readonly hasPasswords: boolean;
  appsOfAccount(idAccount: number): readonly App[];
}

/** Holds the newest view; a change by another process is visible within a second. */
export interface AccessReader {
  current(): AccessView;
  /** Whether the view may lack live apps or tokens: an unknown token must not be called wrong. */
  mayMissApps(): boolean;
  mayMissUsers(): boolean;
  problems(): readonly Problem[];
  /** Calls `listener` after each change of the view; returns a function that removes it. */
  onChange(listener: () => void): () => void;
  close(): void;
}
