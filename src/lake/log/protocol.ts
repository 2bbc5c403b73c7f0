import { AppError } from '../../runtime/errors.ts';
import type { ProtocolAction } from './actions.ts';

/** The feature that a writer of the table must know: no other engine does. */
export const writerFeature = 'tributary-writer';

/**
 * The protocol of the table. Reader version 1: every engine may read it. Writer version 7 with a feature of our own: an
 * engine that keeps to the Delta protocol refuses to write what it does not know, so that it cannot optimize, vacuum,
 * append or delete. Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#table-features
 */
export const tableProtocol: ProtocolAction = {
  minReaderVersion: 1,
  minWriterVersion: 7,
  writerFeatures: [writerFeature],
};

/** The last writer version without features, which version 0.2 of this service wrote. */
const plainWriterVersion = 2;

/** Says whether a table keeps other engines' writers out. */
export function isOwnProtocol(protocol: ProtocolAction | undefined): boolean {
  return (
    protocol?.minReaderVersion === 1 &&
    protocol.minWriterVersion === 7 &&
    protocol.writerFeatures?.length === 1 &&
    protocol.writerFeatures[0] === writerFeature
  );
}

/** Refuses a table whose protocol this code does not know. */
export function assertProtocol(protocol: ProtocolAction | undefined): void {
  if (protocol === undefined || isOwnProtocol(protocol)) return;
  if (protocol.minReaderVersion <= 1 && protocol.minWriterVersion <= plainWriterVersion) return;
  const features = [...(protocol.readerFeatures ?? []), ...(protocol.writerFeatures ?? [])];
  throw new AppError(
    'lake_protocol',
    `the lake's table asks for reader ${protocol.minReaderVersion} and writer ${protocol.minWriterVersion}${features.length === 0 ? '' : ` (${features.join(', ')})`}, which this service does not know`,
    {
      hint: 'A newer version of this service, or another engine, has changed the table: start that version, or restore the log from before that.',
    },
  );
}
