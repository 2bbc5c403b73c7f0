/** Addresses and credentials. An operation needs only some of them. */
export interface ClientOptions {
  /** Address of the import area, such as `http://127.0.0.1:8080`. */
  readonly importUrl?: string;
  /** Address of the export area, such as `http://127.0.0.1:8081`. */
  readonly exportUrl?: string;
  /** The app's token, for imports. */
  readonly token?: string;
  /** The API user, for exports (HTTP Basic). */
  readonly idUser?: string;
  readonly secret?: string;
  /** Replaces the global `fetch`. */
  readonly fetch?: typeof fetch;
}

export interface CallOptions {
  readonly signal?: AbortSignal;
}
