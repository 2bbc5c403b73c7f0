/** The body of every answer of the export area (service.md 4.3, 7.2, 7.3); `code` repeats the HTTP status. */
export interface Envelope {
  readonly code: number;
  readonly message: string;
  readonly data: unknown;
}

/** Why a request is refused: a value, not an exception; becomes an answer in `refuse`. */
export interface Refusal {
  readonly code: 400 | 403 | 404 | 417 | 429 | 500 | 503;
  /** A sentence for the caller that names the argument, the value and what is allowed. */
  readonly detail?: string;
  /** Goes into data.error.info. */
  readonly info?: Readonly<Record<string, unknown>>;
  /** Seconds, for the Retry-After header. */
  readonly retryAfterSeconds?: number;
}

const messages: Readonly<Record<Refusal['code'], string>> = {
  400: 'Bad Request',
  403: 'Access denied',
  404: 'Not Found',
  417: 'Expectation Failed',
  429: 'Too Many Requests',
  500: 'Internal Server Error',
  503: 'Service Unavailable',
};

/** Whether a result is a refusal; no other result here has a `code`. */
export function isRefusal(result: object): result is Refusal {
  return 'code' in result;
}

/** A 400 with its detail text. */
export function badRequest(detail: string, info?: Refusal['info']): Refusal {
  return info === undefined ? { code: 400, detail } : { code: 400, detail, info };
}

/** The refusal of a caller whose authorization is missing or wrong: it says nothing more. */
export const accessDenied: Refusal = { code: 403 };

/** The envelope of a success. */
export function success(data: unknown): Envelope {
  return { code: 200, message: 'Ok', data };
}

/** The envelope of a refusal; `data` is null where service.md has it so. */
export function refusalEnvelope({ code, detail, info }: Refusal): Envelope {
  const data = detail === undefined ? null : { error: { detail, ...(info === undefined ? {} : { info }) } };
  return { code, message: messages[code], data };
}
