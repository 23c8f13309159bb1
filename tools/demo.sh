#!/usr/bin/env bash
# Fine-tunes a small real model and shows what came of it (python/tigon/demo).
cd "$(dirname "$0")/.." && . tools/common.sh
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false HF_HUB_DISABLE_PROGRESS_BARS=1
exec "$python" -m tigon.demo "$@"
