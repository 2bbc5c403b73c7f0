import { JetStreamApiError } from '@nats-io/jetstream';
import { errors } from '@nats-io/transport-node';
import { AppError } from '../runtime/errors.ts';

/** nats-server's error codes that mean "there is no room": store limits reached, or the disk refused the write. */
const noRoomCodes: ReadonlySet<number> = new Set([
  10_023, // insufficient resources
  10_028, // account resources limits exceeded
  10_047, // insufficient storage resources available
  10_077, // maximum bytes or messages exceeded, or the store failed
]);

/** Turns an error of the NATS libraries, caught at the edge of the stream, into one of the service's own. */
export function wrapBrokerError(error: unknown, doing: string): AppError {
  if (error instanceof AppError) return error;
  if (error instanceof JetStreamApiError) {
    if (noRoomCodes.has(error.code)) return new AppError('stream_full', `${doing}: the stream is full`, { cause: error });
    return new AppError('broker_away', `${doing}: the broker refused with ${error.code} ${error.message}`, { cause: error });
  }
  if (error instanceof errors.PermissionViolationError || (error instanceof Error && error.cause instanceof errors.PermissionViolationError)) {
    return new AppError('broker_away', `${doing}: the account may not do it`, { cause: error, hint: 'Give the account leave for $JS.API.>, $JS.EVENT.ADVISORY.STREAM.>, tributary.> and _INBOX.>.' });
  }
  if (error instanceof errors.TimeoutError) return new AppError('broker_away', `${doing}: no answer from the broker`, { cause: error });
  return new AppError('broker_away', `${doing}: the broker is away`, { cause: error });
}
