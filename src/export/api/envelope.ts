/** The body of all responses of the export area (docs/api.md#export); `code` repeats the HTTP status. */
export interface Envelope {
  readonly code: number;
  readonly message: string;
  readonly data: unknown;
}

/** A refused request; `refuse` of server.ts sends it. */
export interface ExportApiError {
  readonly code: 400 | 403 | 404 | 417 | 429 | 500 | 503;
  /** A sentence with the argument, the value and the allowed values. */
  readonly detail?: string;
  /** Sent as data.error.info. */
  readonly info?: Readonly<Record<string, unknown>>;
  readonly retryAfterSeconds?: number;
}

const messages: Readonly<Record<ExportApiError['code'], string>> = {
  400: 'Bad Request',
  403: 'Access denied',
  404: 'Not Found',
  417: 'Expectation Failed',
  429: 'Too Many Requests',
  500: 'Internal Server Error',
  503: 'Service Unavailable',
};

/** Reports whether a result is a refusal; other results have no `code`. */
export function isApiError(result: object): result is ExportApiError {
  return 'code' in result;
}

export function badRequest(detail: string, info?: ExportApiError['info']): ExportApiError {
  return info === undefined ? { code: 400, detail } : { code: 400, detail, info };
}

/** Creates a 404, also for an object of another account. */
export function notFound(detail: string): ExportApiError {
  return { code: 404, detail };
}

export const accessDenied: ExportApiError = { code: 403 };
export const lacksPermission = badRequest('The account lacks export permissions');

export const retryAfterSeconds = 5;
export const unavailable: ExportApiError = { code: 500, retryAfterSeconds };

export function success(data: unknown): Envelope {
  return { code: 200, message: 'Ok', data };
}

/** Creates the envelope of a refusal; `data` is null without a detail. */
export function errorEnvelope({ code, detail, info }: ExportApiError): Envelope {
  const data = detail === undefined ? null : { error: { detail, ...(info === undefined ? {} : { info }) } };
  return { code, message: messages[code], data };
}
