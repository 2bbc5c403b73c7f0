/** Where the service is, and who calls. What an operation does not need may be left out. */
export interface ClientOptions {
  /** Address of the import area, such as `http://127.0.0.1:8080`. */
  readonly importUrl?: string;
  /** Address of the export area, such as `http://127.0.0.1:8081`. */
  readonly exportUrl?: string;
  /** The app's token, for imports. */
  readonly token?: string;
  /** The API user, for exports: sent as HTTP Basic. */
  readonly idUser?: string;
  readonly secret?: string;
  /** Sends the requests instead of the global `fetch`. */
  readonly fetch?: typeof fetch;
}

/** How one call is made. */
export interface CallOptions {
  /** Ends the call. */
  readonly signal?: AbortSignal;
}
