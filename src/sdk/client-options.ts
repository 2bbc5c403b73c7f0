/** URLs and credentials. Imports need `importUrl` and `token`; exports need `exportUrl`, `idUser` and `secret`. */
export interface ClientOptions {
  /** URL of the import API, such as `http://127.0.0.1:8080`. */
  readonly importUrl?: string;
  /** URL of the export API, such as `http://127.0.0.1:8081`. */
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
