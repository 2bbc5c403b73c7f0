import type { Platform } from '../datasets/field-schema.ts';
import type { Problem } from '../runtime/conditions/problem.ts';

/**
 * Access: who may do what. Apps with their import tokens, accounts, and the users of the export area.
 *
 * In: the operator's commands (`app add`, `user add`, ...), which rewrite `access.json` whole under a lock.
 * Out: an AccessView that every process reads from memory and renews within a second of a change.
 * Invariant: tokens rest as SHA-256 hashes, user secrets encrypted (AES-256-GCM) under the key file in `keys/`.
 * Crash: access.json is the old file or the new one (temporary, fsync, rename), never a mixture.
 */

/** An app that events are imported for. */
export interface App {
  readonly idApp: number;
  readonly platform: Platform;
  readonly title: string;
  readonly sdkKey: string;
  readonly idAccount: number;
  readonly idProject: number | undefined;
}

/** How a user's files come where a request does not say it. */
export type FileHabit = 'auto' | 'gzip';

/** The account of an operator who belongs to none: no app and no request has it. */
export const noAccount = 0;

/** A user of the export area. `secret` is in the clear: AuthHMAC needs it as a key. It never reaches a log. */
export interface User {
  readonly idUser: string;
  readonly name: string;
  /** `noAccount` of an operator who belongs to none. */
  readonly idAccount: number;
  readonly secret: string;
  /** service.md 5: the account needs export permission to create a request. */
  readonly canExport: boolean;
  /** Caps this user's simultaneous requests within the account's limit. */
  readonly maxExports: number | undefined;
  /** `gzip`: files are compressed by gzip where a request does not say otherwise, for clients that gunzip every file. */
  readonly files: FileHabit;
  /** May look at how the service is, and change apps and users of every account. */
  readonly isOperator: boolean;
}

/** One consistent reading of the access file, in memory. Lookups cost microseconds and do no I/O. */
export interface AccessView {
  findApp(idApp: number): App | undefined;
  /**
   * The app, when it exists and the token is one of its live ones; undefined otherwise. A wrong token is compared by its
   * hash, in constant time.
   */
  findAppByToken(idApp: number, token: string): App | undefined;
  findUser(idUser: string): User | undefined;
  /** The apps of an account, by id. */
  appsOfAccount(idAccount: number): readonly App[];
}

/** Gives the newest view; a change by another process is seen within a second. */
export interface AccessReader {
  current(): AccessView;
  /** The view may lack apps or tokens that live: what it does not know is not to be called wrong. */
  mayLackApps(): boolean;
  /** The view may lack users that live. */
  mayLackUsers(): boolean;
  /** What of the access data is gone or cannot be read. */
  problems(): readonly Problem[];
  /** Calls back after each change of the view; returns what ends that. */
  onChange(listener: () => void): () => void;
  close(): void;
}
