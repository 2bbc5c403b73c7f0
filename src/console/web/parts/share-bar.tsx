import { formatShare } from './format.ts';

/** A share from 0 to 1 as a bar beside its figure. */
export function ShareBar({ share }: { readonly share: number }) {
  return (
    <span class="share">
      <span class="share-bar" aria-hidden="true">
        <span style={{ width: `${Math.min(100, share * 100)}%` }} />
      </span>
      <span class="number">{formatShare(share)}</span>
    </span>
  );
}
